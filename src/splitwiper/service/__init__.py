"""The networked service: clients and a server that communicate over HTTPS, certificates and identities."""

from splitwiper.extras import check_installed

check_installed("cryptography", "handling certificates")
check_installed("pydantic", "reading signed messages")
