"""What a run leaves: the tree, the run directory, files of draws, plots and the report page.

Imported by `inference` and above; imports `diagnostics` and below.
"""
