# SPDX-License-Identifier: Apache-2.0
"""What the guard costs and saves, measured side by side with plain vLLM on real vLLM code."""
