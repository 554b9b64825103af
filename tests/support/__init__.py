"""What several test rooms share: servers, databases, a manual clock, polling and the report."""
