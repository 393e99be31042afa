"""Checks of the evaluation."""


def expected_words(output: object, expected: str) -> bool:
    """The expected words are in one of the outputs."""
    return expected in str(output)
