"""Cut any module into a client half and a server half, by replay with ghosts.

The client half is the model, stopped after the cut module has computed. The server half runs the model's own
``forward`` again: the cut module returns the received tensors, modules before it return ghosts (tensors with the right
shape and no meaning), and states of the client are ghosts too. Nothing is traced into another representation, so
names, modes, batch sizes and autograd stay those of the model.

==============  ===================================================================
``trees``       nested inputs and outputs
``specs``       descriptions of tensors without their values
``trace``       one run: each operation's reads and writes, and its module
``legality``    whether a cut is possible
``output_layer``  finds the output layer
``plan``        what crosses, who owns which state, the shapes of the ghosts
``ghosts``      modules that answer with ghosts
``halves``      the two halves as modules
``verify``      the proof by running
``workbench``   all of this for one model, and the nearest legal cuts
``pair``        ``Halves``, with clients of different kinds
``cutting``     ``split`` and ``legal_cuts``
``code``        what code computes, independent of its layout
``describe``    digests of values, functions and classes
``identity``    a digest of what a network computes, whatever its weights
==============  ===================================================================
"""

from splitwiper.splitting.cutting import legal_cuts, split
from splitwiper.splitting.halves import ClientHalf, ServerHalf
from splitwiper.splitting.identity import identity, libraries
from splitwiper.splitting.pair import Halves
from splitwiper.splitting.specs import CutWarning, TensorSpec
from splitwiper.splitting.trees import call_with

__all__ = [
    "ClientHalf",
    "CutWarning",
    "Halves",
    "ServerHalf",
    "TensorSpec",
    "call_with",
    "identity",
    "legal_cuts",
    "libraries",
    "split",
]
