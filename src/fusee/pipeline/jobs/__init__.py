"""Jobs over topics, archives and stores. Each is a function that takes a Spark session, and a command."""
