import assert from 'node:assert/strict'
import { randomInt } from 'node:crypto'

/** A thorough run repeats what an ordinary one samples. */
export const isThorough = process.env['ATOLL_TEST_THOROUGH'] === '1'
const ordinaryStride = 3

/** `few` rounds of a repeated step, `many` in a thorough run. */
export function roundsOf(few: number, many: number): number {
  return isThorough ? many : few
}

/** One of these cases, each run another; all in a thorough run. */
export function oneOf<Case>(cases: readonly Case[]): readonly Case[] {
  return isThorough ? cases : [cases[randomInt(cases.length)] as Case]
}

/** Three of these moments, in order, each run others; all in a thorough run. */
export function someOf(momentsMs: readonly number[]): readonly number[] {
  if (isThorough) return momentsMs
  const left = [...momentsMs]
  while (left.length > 3) left.splice(randomInt(left.length), 1)
  return left
}

/**
 * Lets a fault come at a call: at each third one (or `stride`) from a random start, at each one in a thorough run. `survive` returns false when
 * the story ends before that call; a story of fewer than `callsMin` calls fails.
 */
export async function everyCall(
  callsMin: number,
  survive: (at: number) => Promise<boolean>,
  { where = 'all', stride: ordinary = ordinaryStride } = {},
): Promise<void> {
  const stride = isThorough ? 1 : ordinary
  let at = 1 + randomInt(stride)
  try {
    while (await survive(at)) at += stride
  } catch (cause) {
    throw new Error(`${where}, call ${at}: ${String(cause)}`, { cause })
  }
  assert.ok(at > callsMin, `only ${at} calls`)
}
