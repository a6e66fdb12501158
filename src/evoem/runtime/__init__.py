"""The base of the numerics: compiled code, threads, interrupts, files, linear algebra."""
