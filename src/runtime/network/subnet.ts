import { ServiceError } from '../../errors.ts'

/** Addresses of no sandbox: the first is the network's, the second the gateway's, the last the broadcast address. */
const reservedAddresses = 3
const prefixMin = 12
const prefixMax = 28

/** An IPv4 subnet of sandboxes. Slot 0 is the gateway; slots 1 to `slots` are sandboxes. */
export class Subnet {
  readonly base: number
  readonly prefix: number

  /** `cidr` such as `10.200.0.0/16`. Throws `invalid_request`. */
  constructor(cidr: string) {
    const { base, prefix } = parse(cidr)
    if (Number.isNaN(base) || prefix < prefixMin || prefix > prefixMax) {
      const wanted = `an IPv4 network with a prefix of ${prefixMin} to ${prefixMax}`
      throw new ServiceError('invalid_request', `subnet ${cidr} must be ${wanted}`)
    }
    if (base % 2 ** (32 - prefix) !== 0) {
      throw new ServiceError('invalid_request', `subnet ${cidr} has bits set below its prefix`)
    }
    this.base = base
    this.prefix = prefix
  }

  get slots(): number {
    return 2 ** (32 - this.prefix) - reservedAddresses
  }

  get cidr(): string {
    return `${dotted(this.base)}/${this.prefix}`
  }

  get gatewayAddress(): string {
    return this.address(0)
  }

  address(slot: number): string {
    return dotted(this.base + 1 + slot)
  }

  /** The slot of an address; undefined when it is no address of a sandbox. */
  slotOf(address: string): number | undefined {
    const slot = parse(`${address}/32`).base - this.base - 1
    return slot >= 1 && slot <= this.slots ? slot : undefined
  }

  /** Whether the subnet shares addresses with another network, given as `a.b.c.d/n` with or without bits below the prefix. */
  meets(cidr: string): boolean {
    const other = parse(cidr)
    const size = 2 ** (32 - Math.min(this.prefix, other.prefix))
    return Math.floor(this.base / size) === Math.floor(other.base / size)
  }
}

/** `base` is NaN when the text has no address. */
function parse(cidr: string): { base: number; prefix: number } {
  const match = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\/(\d{1,2})$/.exec(cidr)
  const [a = NaN, b = NaN, c = NaN, d = NaN, prefix = NaN] = (match?.slice(1) ?? []).map(Number)
  if (Math.max(a, b, c, d) > 255) return { base: NaN, prefix }
  return { base: ((a * 256 + b) * 256 + c) * 256 + d, prefix }
}

function dotted(value: number): string {
  return [24, 16, 8, 0].map((shift) => (value >>> shift) & 255).join('.')
}
