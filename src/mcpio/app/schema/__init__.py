"""Values of annotated types: their JSON Schemas, the way in from JSON and out to it, and what does not fit."""
