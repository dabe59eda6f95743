//! Storage: disks by NVMe over RDMA, and files by NFS over RDMA, with the kernels' own clients and
//! servers.
//!
//! The matrix and a test call [`all`]: the first guest is the server, the second the client, and
//! each exchange is a step. The content is read back with empty caches and compared. Modules of the
//! kernels are loaded for it; a kernel without them fails the step with the reason. Disk and file
//! have 4 MiB. That queue pairs carried the content is checked for NFS alone. Exports and mounts
//! of the server stay, so that [`all`] may run once for each boot.

use crate::error::Result;
use crate::rdma::Pair;
use crate::rdma::programs::sockets::same_content;
use crate::rdma::steps::{LIMIT, Steps};

/// Size of the disk and of the file, in bytes.
const DISK_BYTES: u32 = 4 << 20;
/// Port of NFS over RDMA.
const NFS_PORT: u16 = 20049;
/// Flags of the export: it has a number (`fsid=0`), clients use ports above 1024, and files are
/// found without their folder (`no_subtree_check`): Linux 7.3 finds no file of tmpfs otherwise.
const EXPORT_FLAGS: u32 = 0x2402;
/// Shortest grace period that a server permits, for a kernel without legacy tracking of clients.
const GRACE_SECONDS: u32 = 10;

/// Runs all exchanges.
pub fn all(steps: &mut Steps) {
    steps.step("NVMe over RDMA", nvme);
    steps.step("NVMe disconnect", nvme_disconnect);
    steps.step("NFS over RDMA", |pair| pair.by_queue_pairs(u64::from(DISK_BYTES), nfs));
}

/// Exports a folder of the first guest by NFS 4.
///
/// The kernel's caches get the export here, in place of the daemons that the kernel would ask: the
/// client is a member of the domain "test", and the root of the file system is /srv. A server with
/// an empty folder of its clients' states need not wait for them: its grace period ends at once.
fn export(pair: &Pair) -> Result<()> {
    let [at, from] = &pair.guests;
    at.load("nfs-server")?;
    let script = format!(
        "set -e; mkdir -p /srv /var/lib/nfs/v4recovery; mount -t tmpfs tmpfs /srv\n\
         mount -t nfsd nfsd /proc/fs/nfsd; never=2147483647; cd /proc/net/rpc\n\
         echo \"nfsd {from} $never test\" >auth.unix.ip/channel\n\
         echo \"test /srv $never {EXPORT_FLAGS} 65534 65534 0\" >nfsd.export/channel\n\
         printf 'test 1 \\\\x00000000 %s /srv\\n' $never >nfsd.fh/channel\n\
         cd /proc/fs/nfsd; echo '-3 +4 +4.1 +4.2' >versions; echo {GRACE_SECONDS} >nfsv4gracetime\n\
         echo rdma {NFS_PORT} >portlist; echo 2 >threads; echo Y >v4_end_grace || true",
        from = from.ip(),
    );
    at.run(&["sh", "-c", &script], LIMIT).map(|_| ())
}

/// Writes a file to the first guest from the second, drops the caches, and reads it back.
fn nfs(pair: &mut Pair) -> Result<()> {
    export(pair)?;
    let [at, from] = &pair.guests;
    from.load("nfs-client")?;
    let (ip, own) = (at.ip(), from.ip());
    let script = format!(
        "set -e; mkdir -p /mnt; mount -i -t nfs4 -o \
         rdma,port={NFS_PORT},vers=4.2,sec=sys,addr={ip},clientaddr={own} {ip}:/ /mnt\n\
         grep -q proto=rdma /proc/mounts\n\
         head -c {DISK_BYTES} /dev/urandom >/tmp/written\n\
         dd if=/tmp/written of=/mnt/file bs=64k conv=fsync\n\
         echo 3 >/proc/sys/vm/drop_caches; cmp /tmp/written /mnt/file; umount /mnt"
    );
    from.run(&["sh", "-c", &script], LIMIT)?;
    same_content(from, "/tmp/written", at, "/srv/file")
}

/// Writes random content to a disk of the first guest from the second, and reads it back, by the
/// kernels' NVMe drivers: fast registration, invalidation, and many requests in flight.
fn nvme(pair: &mut Pair) -> Result<()> {
    let [at, from] = &pair.guests;
    at.load("nvme-target")?;
    from.load("nvme-host")?;
    let target = format!(
        "set -e; mount -t configfs none /sys/kernel/config; cd /sys/kernel/config/nvmet\n\
         mkdir subsystems/t; echo 1 >subsystems/t/attr_allow_any_host\n\
         mkdir subsystems/t/namespaces/1; truncate -s {DISK_BYTES} /tmp/disk\n\
         printf /tmp/disk >subsystems/t/namespaces/1/device_path\n\
         echo 1 >subsystems/t/namespaces/1/buffered_io\n\
         echo 1 >subsystems/t/namespaces/1/enable\n\
         mkdir ports/1; cd ports/1; echo rdma >addr_trtype; echo ipv4 >addr_adrfam\n\
         echo {ip} >addr_traddr; echo 4420 >addr_trsvcid\n\
         ln -s ../../subsystems/t subsystems/t",
        ip = at.ip(),
    );
    at.run(&["sh", "-c", &target], LIMIT)?;
    let uuid = "1b4e28ba-2fa1-11d2-883f-0016d3cca427";
    let host = format!(
        "set -e; echo transport=rdma,traddr={ip},trsvcid=4420,nqn=t,nr_io_queues=1,\
         hostnqn=nqn.2014-08.org.nvmexpress:uuid:{uuid},hostid={uuid} >/dev/nvme-fabrics\n\
         t=0; until [ -b /dev/nvme0n1 ]; do t=$((t+1)); [ $t -lt 100 ]; sleep 0.1; done\n\
         head -c {DISK_BYTES} /dev/urandom >/tmp/written\n\
         dd if=/tmp/written of=/dev/nvme0n1 bs=64k conv=fsync\n\
         echo 3 >/proc/sys/vm/drop_caches; cmp /tmp/written /dev/nvme0n1",
        ip = at.ip(),
    );
    from.run(&["sh", "-c", &host], LIMIT)?;
    same_content(from, "/tmp/written", at, "/tmp/disk")
}

/// Disconnects the disk: the driver posts to a queue pair in the error state and waits for the
/// flushed completion.
fn nvme_disconnect(pair: &mut Pair) -> Result<()> {
    let from = &pair.guests[1];
    let script = "echo 1 >/sys/class/nvme/nvme0/delete_controller && [ ! -e /dev/nvme0n1 ]";
    from.run(&["sh", "-c", script], LIMIT).map(|_| ())
}
