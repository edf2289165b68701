# SPDX-License-Identifier: BSD-3-Clause
@0xd3f1a7c2b4e59680;

interface Echo {
	call @0 (request :Data) -> (reply :Data);
}
