"""Rows and shards: the forms that rows come in, partitions, files, and the cache of loaded shards.

Imported by everything above; imports `model` and `density` only for the cache.
"""
