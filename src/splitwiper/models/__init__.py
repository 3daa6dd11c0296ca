"""Networks that ship with the package, unsplit: `splitwiper.split` cuts them."""

from splitwiper.models.small import digits_cnn, mlp

__all__ = ["digits_cnn", "mlp"]
