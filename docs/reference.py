"""What the reference's pages must be told of our sources: what records are made with, and that lines after `>>>` are code."""

import re
from collections.abc import Iterator
from typing import Any

import griffe

ROOTS = {"eqx.Module", "NamedTuple"}
MADE = ("eqx.field", "field")  # what a default is given by, where it is not a value
EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Reference(griffe.Extension):
    """Change what was read of the package, once all of it is known."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Give records the `__init__` that they have when they run, and fence examples."""
        objects = list(_inside(pkg))
        for each in objects:
            if each.docstring:
                each.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", each.docstring.value)
        classes = [each for each in objects if isinstance(each, griffe.Class)]
        written = {each.path for each in classes if "__init__" in each.members}
        for each in classes:
            family = [each, *each.mro()]
            is_record = any(str(base) in ROOTS for member in family for base in member.bases)
            if is_record and written.isdisjoint(member.path for member in family):
                each.set_member("__init__", _init(each, family[::-1]))


def _inside(parent: griffe.Object) -> Iterator[griffe.Object]:
    yield parent
    for member in parent.members.values():
        if not isinstance(member, griffe.Alias):
            yield from _inside(member)


def _init(each: griffe.Class, family: list[griffe.Class]) -> griffe.Function:
    """Fields are arguments, those of classes above first, as of dataclasses."""
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
        "__init__", parameters=griffe.Parameters(*parameters.values()), lineno=each.lineno
    )


def _default(value: Any) -> Any:
    """The default of a field: what it is, or what makes it; nothing if it must be given."""
    if not (isinstance(value, griffe.ExprCall) and str(value.function) in MADE):
        return value
    given = {
        each.name: each.value for each in value.arguments if isinstance(each, griffe.ExprKeyword)
    }
    if "default_factory" in given:
        return f"{given['default_factory']}()"
    return given.get("default")
