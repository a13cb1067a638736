"""What kopf calls. The only place that knows kopf; each handler takes in an event and is done."""
