"""What the backend logs when it loads a model."""

import re

from tritonserver import TritonServer


def load_report(server: TritonServer, model: str) -> str:
    """The lines about the model's first instance, with single blanks between the columns of the table. It is called
    NAME_0_0 if the configuration has an instance_group, and NAME_0 if Triton made that up. Older servers do not quote lines."""
    lines = re.findall(rf'\] "?{model}_0(?:_0)?: (.*?)"?(?: model=.*)?$', server.log_text(), re.MULTILINE)
    return "\n".join(" ".join(line.split()) for line in lines).replace('\\"', '"')
