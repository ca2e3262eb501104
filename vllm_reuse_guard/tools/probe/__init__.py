# SPDX-License-Identifier: Apache-2.0
"""Try the conformance cases on running servers, guarded or not, and say what came of them."""
