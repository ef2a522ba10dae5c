"""Numbers in sentences."""


def count(number: int, several: str) -> str:
    """1 frame, 2 frames; 1 person, 2 people."""
    if number != 1:
        return f"{number} {several}"
    irregular = {"people": "person", "processes": "process", "passes": "pass"}
    return f"1 {irregular.get(several) or several.removesuffix('s')}"
