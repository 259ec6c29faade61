"""Diagnostics: what must hold before sampling, and what the draws say afterwards."""
