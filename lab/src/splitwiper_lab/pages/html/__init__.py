"""Parts of pages: markup that is safe by construction, tables, and the frame with its style sheet."""
