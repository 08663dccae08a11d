/** Checks of what Atoll can use beside runc. */
import { access, constants, realpath } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { run } from '../command.ts'
import { missing, runSetup, versionText, works, type HostCheck } from '../self-test.ts'

/**
 * KVM_CREATE_VM, KVM_CREATE_VCPU, KVM_SET_TSS_ADDR, KVM_RUN (linux/kvm.h). The device also exists on hosts, such as nested ones,
 * that cannot run a machine; only the last call shows it. An ARM machine needs a description before it runs, so there the
 * second call decides.
 */
const kvmAttempt = `
  open(my $kvm, "+<", "/dev/kvm") or die "/dev/kvm: $!\\n";
  my $vm = ioctl($kvm, 0xAE01, 0) or die "cannot make a machine: $!\\n";
  open(my $machine, "+<&=", $vm) or die "$!\\n";
  my $cpu = ioctl($machine, 0xAE41, 0) or die "cannot make a processor: $!\\n";
  exit 0 if ${process.arch === 'x64' ? 0 : 1};
  open(my $processor, "+<&=", $cpu) or die "$!\\n";
  ioctl($machine, 0xAE47, 0xfffbd000);
  ioctl($processor, 0xAE80, 0) or die "cannot run a machine: $!\\n";
`

/** Atoll works without these. */
export const optionalChecks: HostCheck[] = [
  optional('OCI images', async ({ imageDir }) => {
    const version = await versionText('skopeo', '--version')
    if (version === undefined) return missing('no skopeo: only archives can be imported', runSetup)
    const image = await realpath(join(imageDir, 'scratch')).catch(() => undefined)
    if (image === undefined) return missing('no empty image to put them on', runSetup)
    return works(`${version.trim()}; ${basename(image)}`)
  }),
  engine('gVisor (runsc)', ['runsc', '--version'], (version) => version.split('\n')[0] ?? ''),
  optional('KVM', async () => {
    const device = '/dev/kvm'
    try {
      await access(device, constants.R_OK | constants.W_OK)
    } catch {
      return missing(`no usable ${device}`)
    }
    await run(['perl', '-e', kvmAttempt])
    return works(`${device}; a machine ran`)
  }),
  engine('Incus', ['incus', 'version'], (version) => version.trim().replaceAll('\n', ', ')),
]

function optional(name: string, check: HostCheck['run']): HostCheck {
  return { name, required: false, run: check }
}

function engine(name: string, argv: [string, ...string[]], shown: (version: string) => string): HostCheck {
  return optional(name, async () => {
    const version = await versionText(...argv)
    return version === undefined ? missing('not found') : works(shown(version))
  })
}
