"""A vocabulary of more than 65,536 ids: wide_vocabulary.py FILE writes it as .tiktoken."""
import base64
import sys


def tokens():
    """The bytes and all pairs of them: 65,792. Those of 15 frequent letters and the blank are the last, so that they have the ids from
    65,536 on."""
    late = b" acdehilmnorstuw"
    pairs = sorted((a in late and b in late, a, b) for a in range(256) for b in range(256))
    return [bytes([byte]) for byte in range(256)] + [bytes(pair[1:]) for pair in pairs]


def write(path):
    with open(path, "wb") as file:
        for rank, token in enumerate(tokens()):
            file.write(base64.b64encode(token) + b" %d\n" % rank)


if __name__ == "__main__":
    write(sys.argv[1])
