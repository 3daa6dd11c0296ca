"""One torch thread in all tests: they run side by side on few cores."""

import torch

torch.set_num_threads(1)
