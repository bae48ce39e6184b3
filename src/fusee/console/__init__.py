"""The console: a cluster in a browser, and the same answers as JSON. It stands on `fusee.admin` and needs no more."""
