"""Front ends: a model written elsewhere becomes a `Model`."""
