"""The tables and figures: one function each, listed in `basis.lab.TABLES`."""
