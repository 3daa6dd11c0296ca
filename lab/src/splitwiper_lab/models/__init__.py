"""The networks of the paper, unsplit, and the small ones of `splitwiper.models`."""

from splitwiper.models import ShiftFlip, digits_cnn, mlp
from splitwiper_lab.models.bert import mini_bert
from splitwiper_lab.models.resnet import resnet18
from splitwiper_lab.models.vgg import vgg

__all__ = ["ShiftFlip", "digits_cnn", "mini_bert", "mlp", "resnet18", "vgg"]
