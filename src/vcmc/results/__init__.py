"""Results of a run: the tree, the run directory, files of draws, plots and the report page.

Imported by `inference` and the layers above; imports `diagnostics` and the layers below.
"""
