"""What a server offers, as its author writes it: tools, resources, prompts and completion."""
