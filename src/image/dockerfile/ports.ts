import { quoted, refused } from './fault.ts'

const portMax = 65_535
export const portsMax = 16_384

/** The ports of a word of `EXPOSE`: `80`, `80/udp`, `8000-8010/tcp`, each with its protocol. */
export function portsOf(word: string, line: number): string[] {
  const [, first = '', last = first, protocol = 'tcp'] =
    /^(\d{1,5})(?:-(\d{1,5}))?(?:\/(tcp|udp|sctp))?$/i.exec(word) ?? []
  const [from, to] = [Number(first), Number(last)]
  if (first === '' || from > to || to > portMax) {
    const why = word.includes(':') ? ': EXPOSE has no ports or addresses of a host' : ''
    throw refused(line, `EXPOSE takes a port or a range of ports up to ${portMax}, not ${quoted(word)}${why}`)
  }
  if (to - from >= portsMax) throw refused(line, `more than ${portsMax} ports`)
  return Array.from({ length: to - from + 1 }, (_, index) => `${from + index}/${protocol.toLowerCase()}`)
}
