"""tiktoken's GPT-2 encoding, built from the merge table in the tree so that nothing is downloaded."""
import os

TABLE = os.path.join(os.path.dirname(__file__), "..", "..", "tokenizer", "gpt2_merges.bpe")
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"  # tiktoken 0.14.0's


def byte_of():
    """Maps each character of the merge table to its byte, in the order of the single-byte ids."""
    printable = [byte for byte in range(256) if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def merges():
    with open(TABLE, encoding="utf-8") as file:
        return [tuple(line.split()) for line in file.read().splitlines()[1:]]


def ranks():
    spelt = byte_of()
    ids = {bytes([byte]): i for i, byte in enumerate(spelt.values())}
    for pair in merges():
        ids[bytes(spelt[character] for character in "".join(pair))] = len(ids)
    return ids


def encoding():
    import tiktoken

    return tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks(), special_tokens={"<|endoftext|>": 50256})
