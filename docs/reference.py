"""A Griffe extension for the reference pages.

It gives records (Equinox modules, named tuples) the `__init__` that they have at run time, and
fences the examples in docstrings.
"""

import re
from collections.abc import Iterator
from typing import Any

import griffe

RECORD_BASES = {"eqx.Module", "NamedTuple"}
FIELD_FUNCTIONS = ("eqx.field", "field")
EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Reference(griffe.Extension):
    """Adjust the objects of the package after all of them are loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Add `__init__` to records, and fence examples."""
        objects = list(_walk(pkg))
        for item in objects:
            if item.docstring:
                item.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", item.docstring.value)
        classes = [item for item in objects if isinstance(item, griffe.Class)]
        explicit = {cls.path for cls in classes if "__init__" in cls.members}
        for cls in classes:
            family = [cls, *cls.mro()]
            is_record = any(str(base) in RECORD_BASES for member in family for base in member.bases)
            if is_record and explicit.isdisjoint(member.path for member in family):
                cls.set_member("__init__", _init(cls, family[::-1]))


def _walk(parent: griffe.Object) -> Iterator[griffe.Object]:
    yield parent
    for member in parent.members.values():
        if not isinstance(member, griffe.Alias):
            yield from _walk(member)


def _init(cls: griffe.Class, family: list[griffe.Class]) -> griffe.Function:
    """Return an `__init__` whose arguments are the fields, those of base classes first."""
    kind = griffe.ParameterKind.positional_or_keyword
    parameters = {"self": griffe.Parameter("self", kind=kind)}
    for member in family:
        for name, attribute in member.attributes.items():
            annotation = None if attribute.is_alias else attribute.annotation
            if annotation is not None and "ClassVar" not in str(annotation):
                default = _default(attribute.value)
                parameters[name] = griffe.Parameter(
                    name, annotation=annotation, kind=kind, default=default
                )
    return griffe.Function(
        "__init__", parameters=griffe.Parameters(*parameters.values()), lineno=cls.lineno
    )


def _default(value: Any) -> Any:
    """Return the default of a field, or a call of its factory; None if the field is required."""
    if not (isinstance(value, griffe.ExprCall) and str(value.function) in FIELD_FUNCTIONS):
        return value
    keywords = {
        keyword.name: keyword.value
        for keyword in value.arguments
        if isinstance(keyword, griffe.ExprKeyword)
    }
    if "default_factory" in keywords:
        return f"{keywords['default_factory']}()"
    return keywords.get("default")
