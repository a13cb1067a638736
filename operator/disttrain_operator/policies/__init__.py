"""What the operator does about a job: one behaviour per file. Pure: values in, values out."""
