"""What is bought before an algorithm starts: the units of columns, and a basis."""
