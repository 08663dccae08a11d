/** The port behind which TXT records are looked up. */
export interface TxtResolver {
  /**
   * The texts of all TXT records of a name, the strings of each joined (RFC 7208 § 3.3); aliases (`CNAME`) are followed. Empty when
   * the name or such records do not exist. Throws when no server answers in time, when one fails, or when the signal aborts: the
   * answer is unknown then. The owner of the name writes the texts: treat them as hostile.
   */
  resolveTxt(name: string, signal: AbortSignal): Promise<readonly string[]>
}
