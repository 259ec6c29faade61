"""The command line: commands, the jobs that they run, and the demo.

Imported by nothing; imports everything below.
"""

from .commands import main

__all__ = ["main"]
