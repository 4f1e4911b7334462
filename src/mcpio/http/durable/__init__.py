"""Sessions that outlive the process: written to a store, and restored by the next process."""
