const secondsMin = -62_167_219_200
const secondsMax = 253_402_300_799

/** ISO 8601 with second precision; times outside the years 0 to 9999 are moved to the nearest one inside. */
export function isoSeconds(seconds: number): string {
  const inside = Math.min(Math.max(seconds, secondsMin), secondsMax)
  return `${new Date(inside * 1000).toISOString().slice(0, 19)}Z`
}
