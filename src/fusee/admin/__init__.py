"""Administration: one typed call per operation, over all brokers at once."""

from fusee.admin.client import Admin
from fusee.admin.fan_out import AdminError

__all__ = ["Admin", "AdminError"]
