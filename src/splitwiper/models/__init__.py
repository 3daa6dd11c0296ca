"""Networks that ship with the package, unsplit: `splitwiper.split` cuts them."""

from splitwiper.models.augment import ShiftFlip
from splitwiper.models.bert import mini_bert
from splitwiper.models.resnet import resnet18
from splitwiper.models.small import digits_cnn, mlp
from splitwiper.models.vgg import vgg

__all__ = ["ShiftFlip", "digits_cnn", "mini_bert", "mlp", "resnet18", "vgg"]
