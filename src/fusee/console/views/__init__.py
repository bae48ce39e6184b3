"""The data of every page as typed values: the pages show them, the JSON API sends them as they are."""
