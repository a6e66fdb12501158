"""What the numerics stand on: compiled code, threads, interrupts, files, linear algebra."""
