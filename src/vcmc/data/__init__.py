"""Rows, shards and partitions, files of rows, the cache of loaded shards, and params as points.

Imported by `target`, `density`, `model` and above; imports `space`, `progress` and below.
"""
