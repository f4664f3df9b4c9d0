"""The tables and figures of the report, one file each: a new file is all that a new one takes."""
