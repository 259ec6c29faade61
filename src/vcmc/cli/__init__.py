"""The command line: its commands, their options and console output, the jobs they run, the demo.

Imported by nothing; imports everything below.
"""

from .commands import main

__all__ = ["main"]
