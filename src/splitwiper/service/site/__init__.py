"""The client's side: its site, the link to the server, keys that never leave it, and agreement with other sites."""

from splitwiper.service.site.certifying import Certified
from splitwiper.service.site.config import SiteConfig
from splitwiper.service.site.joining import join
from splitwiper.service.site.site import Site

__all__ = ["Certified", "Site", "SiteConfig", "join"]
