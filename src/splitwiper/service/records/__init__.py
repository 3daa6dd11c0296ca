"""What the service's own database holds, a module for each kind of record, and when unfinished things expire."""
