"""The client's side: its site, link to the server, own key, checks of the server's answers, heads of other sites."""

from splitwiper.service.site.config import SiteConfig
from splitwiper.service.site.joining import join
from splitwiper.service.site.proof import Certified
from splitwiper.service.site.site import Site

__all__ = ["Certified", "Site", "SiteConfig", "join"]
