# SPDX-License-Identifier: Apache-2.0
"""What touches vLLM's own objects, one job a file: facts in, outcomes out."""
