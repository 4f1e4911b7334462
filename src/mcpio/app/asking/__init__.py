"""What a server asks of its client: a message of its model, a form or a visit of its user, its roots."""
