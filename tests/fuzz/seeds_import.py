"""Seeds of the import fuzzer, by torch.save of the torch that is installed: seeds_import.py FOLDER."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle", "trainer"))
try:
    import foreign_models
except ImportError:
    sys.exit("without torch: the stored seeds alone")
foreign_models.save_tiny(sys.argv[1])
