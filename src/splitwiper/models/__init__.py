"""Small networks for first steps, and augmentation behind the cut. `splitwiper.split` cuts any network."""

from splitwiper.models.augment import ShiftFlip
from splitwiper.models.small import digits_cnn, mlp

__all__ = ["ShiftFlip", "digits_cnn", "mlp"]
