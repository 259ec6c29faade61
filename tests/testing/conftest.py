"""How every message of a broken law reads."""

import pytest

from vcmc.testing import LawError

MESSAGE = r"breaks a law: .*\. Expected .*; got .*\. Try this: .*\.$"


@pytest.fixture
def broken():
    """A function that expects a law to be broken.

    The message must say what was expected, what was got and what to try.
    """

    def expect(law):
        return pytest.raises(LawError, match=rf"(?s)^(?=\S+.* {MESSAGE}).*{law}")

    return expect
